"""Settings of clients: those of Kafka's producers, consumers and admin clients, and a few of
Moldau. Each is declared once; `declare.py` derives those that brokers have, too.
"""
