# A channel whose clients send no requests leaves places for those of others.
ask = entry(QUERY_OPTION, LOCAL, code=CONGESTION)
channel = new_channel()
idle = [over(channel) for _ in range(16)]
last = over(channel)
assert idle[0].recv(1) == b"", "the oldest has made room"
assert all(len(told(s, ask)) == 48 for s in idle[1:] + [last])

# Those over channels have all their places.
channels = [new_channel() for _ in range(16)]
idle = [over(channel) for channel in channels for _ in range(16)]
assert len(told(by_path(), ask)) == 48
assert len(told(over(channel), ask)) == 48

# More clients than places, which send their requests, are all served.
channel, idle = new_channel(), []
for n in range(40):
    if not os.fork():
        for _ in range(20):
            # On a busy host, a client may be idle for too long.
            while len(told(over(channel), ask)) != 48:
                continue
        os._exit(0)
assert [os.wait()[1] for _ in range(40)] == [0] * 40

# What came over a channel does not become one.
s = over(channel)
assert told(s, entry(CHANNEL)) == b"" and len(told(over(channel), ask)) == 48
print("all is well")
