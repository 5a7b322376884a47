--! script fair_release
--! key 1 lock     hash
--! key 2 queue    list
--! key 3 timeouts zset
--! key 4 channel  channel
--! arg 1 owner    string
--! arg 2 keep     int
--! arg 3 absence  ms
--! arg 4 counts   bool
--! arg 5 publish  string
--! reply int      1 done; 0 the owner does not hold the lock
--
-- Sets the hold count of an owner to keep. At zero it removes the owner, and tells a waiter: see include/tell_next.
-- The lock's time to live does not change.
if ARGV[2] ~= '0' then
  if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
    return 0
  end
  redis.call('hset', KEYS[1], ARGV[1], ARGV[2])
  redis.call('exists', KEYS[1]) -- restores the registration of a connection with tracking: see release
  return 1
end
if redis.call('hdel', KEYS[1], ARGV[1]) == 0 then -- not del: see release
  return 0
end
--! include server_time
--! include tell_next result=1
