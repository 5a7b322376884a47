--! script describe
--! key 1 lock hash NAME
--! arg 1 entries int
--! reply strings kind, pttl, token, how many wait, since when in ms since the epoch, the length of what follows; owner and hold count in turn; then entry and score in turn
--! bound 10600 calls 25 MB
--
-- Reads what has a name, of any kind, and as many entries of each queue as ARGV[1] says. kind is lock, read, write,
-- semaphore, count or none. Owners past their deadlines and expired readers are left out: see inspect and rw_inspect.
-- Of a semaphore, the owner is the permit that ends last, and the hold count the number of permits in use; a count has
-- an owner without a name, and the count as its hold count. An entry of a fair lock's queue begins with =, and its
-- score is 0. Since when the first owner has the lock is known once its lease was renewed, and is 0 before and of other
-- kinds. The limit holds_read: see read_release.
local kind, left, token, began = 'none', redis.call('pttl', KEYS[1]), false, '0'
local owners = {}
local size = redis.pcall('hlen', KEYS[1]) -- an error, if the key holds other data
if type(size) == 'table' and not string.find(size.err, 'WRONGTYPE', 1, true) then
  size = redis.call('hlen', KEYS[1]) -- the user may not: the error has a line, which names the command
end
--! include prefix_of lock=KEYS[1]
if type(size) == 'table' then
  --! include describe_count
elseif size > 0 then
  if redis.call('hexists', KEYS[1], 'mode') == 0 then
    kind = 'lock'
  else
    kind = redis.pcall('hget', KEYS[1], 'mode') == 'write' and 'write' or 'read'
  end
  local fields
  --! include fields_of key=KEYS[1] size=size most=holds_read+1 fields=fields
  if not fields then -- damage: the lock is held, by unknown owners
    fields = {'', '0'}
  end
  if kind == 'lock' then
    token = redis.pcall('get', 'redisson_lock_token:' .. prefix)
    --! include live_owners fields=fields owners=owners
    --! include note_of lock=KEYS[1]
    local noted = redis.pcall('get', note)
    local at, by = string.match(type(noted) == 'string' and noted or '', '^(%d+) (.*)$')
    if at and #at <= tick_longest and by == owners[1] then
      began = at
    end
  else
    --! include live_sides fields=fields owners=owners
  end
end
if type(token) ~= 'string' or #token > permits_longest or not string.find(token, '^%d+$') then
  token = '0'
end
local out = {kind, string.format('%.0f', left), token, '', began, tostring(#owners)}
for i = 1, #owners do
  out[#out + 1] = owners[i]
end
local waiting = 0
local most = math.min(tonumber(ARGV[1]), entries_described)
--! include queue_of lock=KEYS[1]
--! include describe_queue queue=queue most=most out=out waiting=waiting
local wake = 'mortise:1:wake:{' .. KEYS[1] .. '}'
if string.find(KEYS[1], '{', 1, true) then
  wake = 'mortise:1:wake:' .. KEYS[1] .. ':'
end
--! include describe_queue queue=wake most=most out=out waiting=waiting
local places = redis.pcall('llen', 'redisson_lock_queue:' .. prefix)
if type(places) == 'number' and places > 0 then
  waiting = waiting + places
  local first = most > 0 and redis.pcall('lrange', 'redisson_lock_queue:' .. prefix, 0, most - 1) or {}
  for _, place in ipairs(first) do
    out[#out + 1] = '=' .. place
    out[#out + 1] = '0'
  end
end
out[4] = string.format('%.0f', waiting)
return out
