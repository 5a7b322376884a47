--! script read_enter
--! key 1 lock    hash   NAME
--! key 2 timeout string {NAME}:READER:rwlock_timeout:1
--! key 3 proof   string NAME|{NAME}:READER:rwlock_timeout:1
--! arg 1 owner   string
--! arg 2 under   string
--! arg 3 lease   ms
--! arg 4 track   bool
--! reply int     1 granted; 0 there is no such hold to enter under
--! bound 12 calls 1 KB
--
-- Grants the read side of a read-write lock to an owner that enters under another's hold, for reading or writing,
-- ahead of all waiters. under is the field of that hold. proof is a key that lives as long as the hold: a reader's
-- timeout key, or for a writer the lock.
if redis.call('hexists', KEYS[1], ARGV[1]) == 1 and redis.call('exists', KEYS[2]) == 1 then
  redis.call('hset', KEYS[1], ARGV[1], '1') -- a write for WAIT, as in acquire
  --! include read_back track=ARGV[4] lock=KEYS[1]
  return 1
end
if redis.call('hexists', KEYS[1], ARGV[2]) == 0 or redis.call('exists', KEYS[3]) == 0 then
  return 0
end
redis.call('hset', KEYS[1], ARGV[1], '1')
redis.call('set', KEYS[2], '1', 'px', ARGV[3])
--! include prolong key=KEYS[1] lease=ARGV[3]
--! include read_back track=ARGV[4] lock=KEYS[1]
return 1
