"""What clients are told: Kafka's settings of producers, consumers and admin clients, and a few own.
Each is declared once; `declare.py` takes over what brokers and clients have in common.
"""
