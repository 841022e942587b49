"""The best that any placement could reach, to see how far from it the strategies are.

What two papers state as programmes, DACS' Eq. 3-7 and KubeDSM's Eq. 9, solved exactly. Only
for experiments: a solver has no place on a board, and a scheduler no time for one.
"""
