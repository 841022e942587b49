"""KEDA's external scaler: how many replicas a service needs, and the rates of requests it goes by.

Which replica goes first when a service is scaled down is in scheduling/.
"""
