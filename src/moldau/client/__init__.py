"""The producers, consumers and admin clients behind `moldau` and `moldau.aio`, for Moldau and for
Apache Kafka from 2.1 on. The command line uses them too.
"""
