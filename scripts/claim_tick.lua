--! script claim_tick
--! key 1 tick     string mortise:1:tick:{NAME}
--! arg 1 id       string
--! arg 2 interval ms
--! arg 3 offset   ms
--! arg 4 missed   int
--! arg 5 late     ms
--! arg 6 keep     ms
--! reply ints     granted (1 or 0), the tick's time in ms if so, ms until the next can be claimed
--! bound 12 calls 2 MB
--
-- Claims the oldest due tick after the last claimed one: at most missed ticks before the newest, and at most late
-- behind its time, unless late is 0. The record has the last claimed tick, and the id of its claim. Without a record
-- the ticks until now, of any interval, may have been claimed before: now is recorded, without an id, and no tick is
-- granted.
--! include server_time
local interval, late, missed = tonumber(ARGV[2]), tonumber(ARGV[5]), tonumber(ARGV[4])
local newest = now - (now - ARGV[3]) % interval
if late > 0 then
  missed = math.min(missed, math.floor((late - (now - newest)) / interval))
end
local first = newest - missed * interval
local value, time, id = redis.call('get', KEYS[1]), nil, nil
if value then
  time, id = string.match(value, '^(%d+):(.*)$')
  if not time or #time > tick_longest then
    return redis.error_reply('WRONGKIND the key holds no tick')
  end
end
local last = tonumber(time or now)
if id == ARGV[1] and last >= first then
  return {1, last, math.max(last + interval - now, 0)}
end
local due = math.max(first, last - (last - ARGV[3]) % interval + interval)
local granted = 0
if not value then
  redis.call('set', KEYS[1], string.format('%.0f', last) .. ':', 'px', ARGV[6])
elseif due <= newest then
  redis.call('set', KEYS[1], string.format('%.0f', due) .. ':' .. ARGV[1], 'px', ARGV[6])
  granted, last, due = 1, due, due + interval
end
return {granted, last, math.max(due - now, 0)}
