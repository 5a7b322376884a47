--! script acquire_fenced
--! key 1 lock    hash   NAME
--! key 2 token   string redisson_lock_token:{NAME}
--! arg 1 owner   string
--! arg 2 lease   ms
--! reply ints    0, token: granted; n>0, 0: refused, n ms left; -1, 0: refused, no expiry
--! bound 4000 calls 25 MB
--
-- Like acquire, and draws a fencing token: larger than every earlier token of this lock. A missing counter starts at
-- the server's time in ms, so that tokens after a flush are larger than earlier ones.
local free
--! include look lock=KEYS[1] free=free
if not free and redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
  --! include not_read_write
  --! include refuse_pair second=0
end
-- Before the lock is written: if the token cannot be drawn, nothing is locked.
local token
--! include draw_token counter=KEYS[2] token=token
if free then
  redis.call('hset', KEYS[1], ARGV[1], '1')
  redis.call('pexpire', KEYS[1], ARGV[2])
end
return {0, token}
