--! script delegate_renew
--! key * lock    hash
--! key * nest    hash
--! arg 1 track   bool
--! arg * owner   string
--! arg * lease   ms
--! reply ints    for each lock: 1 held; 0 the owner does not hold the lock
--
-- Like renew, for owners that other owners may have entered under, or that entered under another: see
-- delegate_enter. Each owner has its own deadline, and the lock's time to live is the latest. A lease of 0 only
-- checks, and changes nothing.
local held = {}
--! include server_time
for i = 1, #KEYS / 2 do
  local lock, nest = KEYS[2 * i - 1], KEYS[2 * i]
  local owner, lease = ARGV[2 * i], tonumber(ARGV[2 * i + 1])
  held[i] = 0
  if redis.pcall('hexists', lock, owner) == 1 then
    local entry = redis.pcall('hget', nest, owner) -- false if there is none, a table after an error
    local at, ends = string.match(type(entry) == 'string' and entry or '', '^(%d+):(%d+)$')
    if not ends or tonumber(ends) > now then
      held[i] = 1
      if ends and lease > 0 and tonumber(ends) < now + lease then
        redis.call('hset', nest, owner, string.format('%s:%.0f', at, now + lease))
        if redis.call('pttl', nest) < lease + 1000 then
          redis.call('pexpire', nest, lease + 1000)
        end
      end
      --! include extend_lease lock=lock lease=lease track=ARGV[1]
    end
  end
end
return held
