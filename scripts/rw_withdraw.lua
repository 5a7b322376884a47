--! script rw_withdraw
--! key 1 writer   string
--! key 2 channel  channel
--! arg 1 claimant string
--! arg 2 publish  string
--! reply int      1 withdrawn; 0 the claim is not the claimant's
--
-- Takes back a waiting writer's claim, and tells the waiters. publish: publish or spublish.
if redis.call('get', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('del', KEYS[1])
redis.call(ARGV[2], KEYS[2], '0')
return 1
