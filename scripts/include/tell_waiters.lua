--! fragment tell_waiters lock to publish served
--
-- After a release: serves the queue if there is one and the record is absent, otherwise tells all waiters. If there is
-- none, but the message reached a subscriber, foreign clients get a window (see take_turns). served becomes true if an
-- entry was served, or a window is open.
--! include queue_of lock=lock
local heads = redis.pcall('zrange', queue, 0, 1, 'withscores') -- an error, without entries, if the key holds other data
local queued = heads[1]
local told = not queued and redis.call(publish, to, '+0') -- 0 to Redisson
local places = 'redisson_lock_queue:' .. string.sub(to, #'redisson_lock__channel:' + 1)
-- In most cases none of the three exists. An error: a user that may not read one, or a slot that moves.
local quiet = (queued or told > 0) and redis.pcall('exists', lock, queue .. ':round', places) == 0
if quiet or (queued or told > 0) and redis.call('exists', lock) == 0 then
  local channel, asks = to, queue .. ':asks'
  --! include teller
  --! include serve_queue lock=lock mark=(publish=='spublish'and's'or'c') asker='' heard=false freed=true quiet=quiet heads=heads served=served
end
if queued and not served then
  redis.call(publish, to, redis.call('exists', lock, queue) == 0 and '+0' or '0')
end
