--! fragment tell_latch publish message
--
-- Tells the waiters of a latch. The channel's name is made here and is no key: Redisson adds braces also to a name
-- with braces, and so the channel has another slot. With sharded pub/sub the channel is in the latch's slot.
local channel = 'redisson_countdownlatch__channel__{' .. KEYS[1] .. '}'
if publish == 'spublish' and string.find(KEYS[1], '{', 1, true) then
  channel = 'redisson_countdownlatch__channel__' .. KEYS[1]
end
redis.call(publish, channel, message)
