--! script rw_withdraw
--! key 1 lock     hash    NAME
--! key 2 writer   string  mortise:1:writer:{NAME}
--! key 3 channel  channel redisson_rwlock:{NAME}
--! arg 1 claimant string
--! arg 2 publish  publish|spublish
--! reply int      1 withdrawn; 0 the claim is not the claimant's
--! bound 1500 calls 10 MB
--
-- Removes a waiting writer's claim, and tells the waiters. publish: publish or spublish.
if redis.call('get', KEYS[2]) ~= ARGV[1] then
  return 0
end
redis.call('del', KEYS[2])
local mode = redis.pcall('hget', KEYS[1], 'mode')
if not mode or mode == 'read' then
  --! include announce_side publish=ARGV[2] channel_key=KEYS[3] reading=mode message='0'
else
  redis.call(ARGV[2], KEYS[3], '+0')
end
return 1
