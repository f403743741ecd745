"""The door to Paddle, the owner of Fleet and of ranks, and the processor under them.

Every other module takes Paddle from `paddle_api` and communication from `distributed`.
"""
