--! script force_release
--! key 1 lock    hash
--! key 2 channel channel
--! key 3 queue   list
--! arg 1 publish string
--! reply int     1 released; 0 there was no lock
--
-- Removes the lock, whatever its owner, and tells its waiters and the first waiter in the queue of
-- a fair lock. Where several owners hold it, the waiters that would enter under each of them are told, too
-- (see delegate_enter).
local several = redis.call('hlen', KEYS[1])
if several == 0 then
  return 0
end
--! include not_read_write
local owners = several > 1 and redis.call('hgetall', KEYS[1]) or {}
redis.call('del', KEYS[1])
for i = 1, math.min(#owners, 128), 2 do
  redis.call(ARGV[1], KEYS[2] .. ':under:' .. owners[i], '0')
end
redis.call(ARGV[1], KEYS[2], '0')
--! include tell_queue_head queue=KEYS[3] publish=ARGV[1] channel=KEYS[2]
return 1
