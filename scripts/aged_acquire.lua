--! script aged_acquire
--! key 1 lock    hash   NAME
--! key 2 since   string mortise:1:since
--! arg 1 owner   string
--! arg 2 lease   ms
--! arg 3 age     ms
--! arg 4 keep    ms
--! arg 5 track   bool
--! reply ints    0, 0: granted; n>0, 0: refused, n ms left; -1, 0: refused, no expiry; n>0, 1: refused, the server is too young for n ms
--! bound 4000 calls 25 MB
--
-- Like acquire, but only if the server has kept its data for at least age. since has the time since which the server
-- has its data, and the server's run id. The script writes since anew if it is missing or has another run id: the
-- server was emptied, or was restarted and may have lost its last writes, or a replica took over. Each request keeps
-- since for at least half of keep, so since expires only after long disuse.
if redis.call('hexists', KEYS[1], ARGV[1]) == 1 then
  return {0, 0}
end
--! include server_time
local run = string.match(redis.call('info', 'server'), 'run_id:(%w+)') or ''
local value = redis.call('get', KEYS[2]) or ''
local begun, of = string.match(value, '^(%d+):(%w*)$')
begun = tonumber(begun or now)
if of ~= run or begun > now then
  begun = now
  redis.call('set', KEYS[2], string.format('%.0f', now) .. ':' .. run, 'px', ARGV[4])
elseif redis.call('pttl', KEYS[2]) < tonumber(ARGV[4]) / 2 then
  redis.call('pexpire', KEYS[2], ARGV[4])
end
local left = begun + tonumber(ARGV[3]) - now
if left > 0 then
  return {left, 1}
end
local free
--! include look lock=KEYS[1] free=free
if free then
  redis.call('hset', KEYS[1], ARGV[1], '1')
  redis.call('pexpire', KEYS[1], ARGV[2])
  --! include read_back track=ARGV[5] lock=KEYS[1]
  return {0, 0}
end
--! include not_read_write
--! include refuse_pair second=0
