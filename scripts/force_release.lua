--! script force_release
--! key 1 lock    hash
--! key 2 channel channel
--! key 3 fair    list
--! arg 1 publish string
--! reply int     1 released; 0 there was no lock
--
-- Removes the lock, whatever its owners are, and serves the queue, or tells all waiters and the first waiter for the
-- fair lock of the name. If the lock had several owners, waiters under each of them (see delegate_enter) are told
-- first, for 64 owners at most.
local several = redis.call('hlen', KEYS[1])
if several == 0 then
  return 0
end
--! include not_read_write
local owners = several > 1 and redis.pcall('hgetall', KEYS[1]) or {} -- an error has no entries
local served = false
redis.call('del', KEYS[1])
for i = 1, math.min(#owners, 128), 2 do
  redis.call(ARGV[1], KEYS[2] .. ':under:' .. owners[i], '0')
end
--! include tell_waiters lock=KEYS[1] channel=KEYS[2] publish=ARGV[1] served=served
if not served then
  --! include tell_queue_head queue=KEYS[3] publish=ARGV[1] channel=KEYS[2]
end
return 1
