"""`moldau demo`: a broker, a generator of orders and a pipeline (`orders.yaml`) in one terminal.
`stage` starts and stops them in the right order.
"""
