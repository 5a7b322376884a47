--! script delegate_release
--! key 1 lock    hash    NAME
--! key 2 nest    hash    mortise:1:nest:{NAME}
--! key 3 channel channel redisson_lock__channel:{NAME}
--! key 4 fair    list    redisson_lock_queue:{NAME}
--! arg 1 owner   string
--! arg 2 keep    int
--! arg 3 publish publish|spublish
--! reply int     1 done; 0 the owner does not hold the lock
--! bound 5000 calls 25 MB
--
-- Like release, for an owner that other owners may have entered under, or that entered under another: see
-- delegate_enter. The lock's time to live becomes the latest deadline of the owners that are left. If one owner is
-- left, its entry in nest is removed, as if there had been no other. Waiters that want to enter under an owner are
-- told on that owner's channel: when the owner is gone, when no owner is after it any more, and when its hold count
-- was set. The count does not rise: a release that arrives late would make a delegation of an ended hold good again.
-- When the last owner goes, all kinds of waiters for the lock are told.
--! include server_time
local held = redis.call('hexists', KEYS[1], ARGV[1])
local entries
local size = redis.call('hlen', KEYS[2])
--! include fields_of key=KEYS[2] size=size most=owners_read fields=entries
entries = entries or {} -- damage: the lock keeps its time to live
local gone = {}
local known, last, latest = 0, -1, 0
local top
for i = 1, #entries, 2 do
  local owner = entries[i]
  local at, ends = string.match(entries[i + 1], '^(%d+):(%d+)$')
  ends = tonumber(ends or 0)
  if redis.call('hexists', KEYS[1], owner) == 0 then
    if owner == ARGV[1] or ends + nest_entry_kept < now then -- see delegate_enter
      redis.call('hdel', KEYS[2], owner)
    end
  elseif ends <= now then
    redis.call('hdel', KEYS[1], owner)
    redis.call('hdel', KEYS[2], owner)
    table.insert(gone, owner)
    if owner == ARGV[1] then
      held = 0
    end
  elseif owner ~= ARGV[1] or ARGV[2] ~= '0' then
    known = known + 1
    latest = math.max(latest, ends)
    if tonumber(at) > last then
      last, top = tonumber(at), owner
    end
  end
end
if held == 1 and ARGV[2] == '0' then
  redis.call('hdel', KEYS[1], ARGV[1]) -- not del: see release
  redis.call('hdel', KEYS[2], ARGV[1])
  table.insert(gone, ARGV[1])
elseif held == 1 then
  local keep, count = tonumber(ARGV[2]), tonumber(redis.call('hget', KEYS[1], ARGV[1]))
  if type(redis.pcall('hset', KEYS[1], ARGV[1], math.min(keep, count or keep))) == 'table' then -- a full server
    redis.call('hdel', KEYS[1], '') -- see release
    redis.call('hset', KEYS[1], ARGV[1], math.min(keep, count or keep))
  end
  redis.call(ARGV[3], KEYS[3] .. ':under:' .. ARGV[1], '0')
end
if #gone > 0 then
  local left = redis.call('hlen', KEYS[1])
  if known == 1 then
    redis.call('hdel', KEYS[2], top)
  end
  if left == known and left > 0 and latest < exact_most then
    redis.call('pexpire', KEYS[1], latest - now)
  end
  for _, owner in ipairs(gone) do
    redis.call(ARGV[3], KEYS[3] .. ':under:' .. owner, '0')
  end
  if top then
    redis.call(ARGV[3], KEYS[3] .. ':under:' .. top, '0')
  end
  if left == 0 then
    local served = false
    --! include tell_waiters lock=KEYS[1] to=KEYS[3] publish=ARGV[3] served=served
    if not served then
      --! include tell_queue_head queue=KEYS[4] publish=ARGV[3] channel=KEYS[3]
    end
  end
end
redis.call('exists', KEYS[1]) -- for a connection with tracking: see release
return held
