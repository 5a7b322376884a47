--! script release
--! key 1 lock    hash    NAME
--! key 2 channel channel redisson_lock__channel:{NAME}
--! arg 1 owner   string
--! arg 2 keep    int
--! arg 3 publish publish|spublish
--! reply int     1 done; 0 the owner does not hold the lock
--! bound 4000 calls 25 MB
--
-- Sets the hold count of an owner to keep. At zero it removes the owner, and serves the queue, or tells all waiters
-- if the queue is empty. The lock's time to live does not change.
--
-- A partial release ends with a read of the lock: the write has dropped the registration of a connection with
-- tracking, and the read restores it.
--
-- A full server (maxmemory, noeviction) refuses the first write of a script if the write needs memory, and allows all
-- later ones. So after a refusal comes a write that needs no memory and changes nothing, and then the refused one
-- again.
if ARGV[2] == '0' then
  -- Not del: Redisson may have granted a read lock in the same hash.
  if redis.call('hdel', KEYS[1], ARGV[1]) == 0 then
    return 0
  end
  local served = false
  --! include tell_waiters lock=KEYS[1] to=KEYS[2] publish=ARGV[3] served=served
  return 1
end
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
  return 0
end
--! include set_holds lock=KEYS[1] owner=ARGV[1] holds=ARGV[2]
return 1
