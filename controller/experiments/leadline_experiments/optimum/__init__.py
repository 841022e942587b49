"""Optimal placements, to measure the strategies' optimality gaps.

Two papers' programmes are solved exactly: DACS' Eq. 3-7 and KubeDSM's Eq. 9. A solver is too large
for a board and too slow for a scheduler, so no strategy belongs here.
"""
