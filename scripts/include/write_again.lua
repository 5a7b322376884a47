--! fragment write_again
--
-- A write for WAIT, as in acquire: the lock gets the time that it has, or the lease if it has none.
local left = redis.call('pttl', KEYS[1])
redis.call('pexpire', KEYS[1], left > 0 and left or ARGV[2])
