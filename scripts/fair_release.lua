--! script fair_release
--! key 1 lock     hash    NAME
--! key 2 queue    list    redisson_lock_queue:{NAME}
--! key 3 timeouts zset    redisson_lock_timeout:{NAME}
--! key 4 channel  channel redisson_lock__channel:{NAME}
--! arg 1 owner    string
--! arg 2 keep     int
--! arg 3 absence  ms
--! arg 4 counts   bool
--! arg 5 publish  publish|spublish
--! reply int      1 done; 0 the owner does not hold the lock
--! bound 25000 calls 25 MB
--
-- Sets the hold count of an owner to keep. At zero it removes the owner, and tells a waiter: see include/tell_next.
-- The lock's time to live does not change.
if ARGV[2] ~= '0' then
  if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
    return 0
  end
  --! include set_holds lock=KEYS[1] owner=ARGV[1] holds=ARGV[2]
  return 1
end
if redis.call('hdel', KEYS[1], ARGV[1]) == 0 then -- not del: see release
  return 0
end
--! include server_time
--! include tell_next result=1
