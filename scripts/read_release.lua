--! script read_release
--! key 1 lock    hash
--! key 2 timeout string
--! key 3 prefix  string
--! key 4 channel channel
--! arg 1 owner   string
--! arg 2 publish string
--! reply int     1 done; 0 the owner does not hold the lock
--
-- Takes a reader out. When none is left whose time is not over, the lock is free and its
-- waiters are told; otherwise it lives as long as the longest of them. Under a writer
-- its time is left alone, since the writer's is nowhere else. publish: publish or spublish.
-- What leaves the lock held ends with a read, so that a connection that tracks hears of
-- changes to what else it holds (its own write dropped the registration).
-- A count beyond 10000 is damage: looking for so many keys would stop the server.
--
-- Where the lock's time is longer than that of the one who leaves, it is another's: one who lives is
-- enough to know then. With 10000 readers that is a tenth of the work.
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
  redis.call('del', KEYS[2]) -- where the lock was removed, and this not
  return 0
end
-- Before Redis 7 time goes on in a script: by a millisecond it says nothing.
local others = redis.call('pttl', KEYS[2]) + 1 < redis.call('pttl', KEYS[1])
local held = redis.call('del', KEYS[2])
redis.call('hdel', KEYS[1], ARGV[1])
if redis.call('hget', KEYS[1], 'mode') == 'write' then -- a read after the write, too
  return held
end
local most = 0
local fields = redis.call('hgetall', KEYS[1])
for i = 1, #fields, 2 do
  for k = 1, math.min(tonumber(fields[i + 1]) or 0, 10000) do
    most = math.max(most, redis.call('pttl', KEYS[3] .. ':' .. fields[i] .. ':rwlock_timeout:' .. k))
  end
  if others and most > 0 then
    return held
  end
end
if most > 0 then
  redis.call('pexpire', KEYS[1], most)
  redis.call('exists', KEYS[1])
else
  redis.call('del', KEYS[1])
  redis.call(ARGV[2], KEYS[4], '0')
end
return held
