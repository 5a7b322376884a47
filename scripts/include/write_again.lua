--! fragment write_again
--
-- A write for WAIT, as in acquire: the lock gets the time that it has.
local left = redis.call('pttl', KEYS[1])
if left > 0 then
  redis.call('pexpire', KEYS[1], left)
end
