--! script delegate_renew
--! key * lock    hash NAME
--! key * nest    hash mortise:1:nest:{NAME}
--! arg 1 track   bool
--! arg * owner   string
--! arg * lease   ms
--! arg * exact   bool
--! reply ints    for each lock: 1 held; 0 the owner does not hold the lock; n>1 held, for n ms, which is longer than lease
--! needs hexists hget
--! bound 1200 calls 2 MB
--
-- Like renew, for owners that other owners may have entered under, or that entered under another: see
-- delegate_enter. Each owner has its own deadline, and the lock's time to live is the latest. With exact, the owner's
-- deadline becomes earlier, too, if lease ends before it. A lease of 0 only checks, and changes nothing.
local held, budget = {}, owners_read
--! include server_time
for i = 1, #KEYS / 2 do
  local lock, nest = KEYS[2 * i - 1], KEYS[2 * i]
  local owner, lease, exact = ARGV[3 * i - 1], tonumber(ARGV[3 * i]), ARGV[3 * i + 1]
  held[i] = 0
  if redis.pcall('hexists', lock, owner) == 1 then
    local entry = redis.pcall('hget', nest, owner) -- false if there is none, a table after an error
    local at, ends = string.match(type(entry) == 'string' and entry or '', '^(%d+):(%d+)$')
    if not ends or tonumber(ends) > now then
      held[i] = 1
      ends = tonumber(ends)
      if ends and lease > 0 and (ends < now + lease or ends > now + lease and exact == '1') then
        if type(redis.pcall('hset', nest, owner, string.format('%s:%.0f', at, now + lease))) == 'table' then -- a full server
          redis.call('hdel', nest, '') -- see release
          redis.call('hset', nest, owner, string.format('%s:%.0f', at, now + lease))
        end
        local kept = redis.call('pttl', nest)
        if kept >= 0 and kept < lease + nest_outlives then
          redis.call('pexpire', nest, lease + nest_outlives)
        end
      elseif ends and lease > 0 and ends > now + lease then
        held[i] = ends - now
      end
      local left = redis.call('pttl', lock)
      if left >= 0 and left < lease then
        redis.call('pexpire', lock, lease)
        --! include read_back track=ARGV[1] lock=lock
      elseif lease > 0 and (left == -1 or exact == '1' and left > lease) then
        -- The time to live is wrong, or another owner's deadline is later: it becomes the latest deadline, if all are known.
        local known, latest = ends and 0 or 1, ends and 0 or now + lease
        local size = redis.call('hlen', nest)
        budget = budget - size
        local entries
        --! include fields_of key=nest size=size most=size+budget fields=entries
        for k = 1, entries and #entries or 0, 2 do
          local later = tonumber(string.match(entries[k + 1], '^%d+:(%d+)$'))
          if later and redis.call('hexists', lock, entries[k]) == 1 then
            known, latest = known + 1, math.max(latest, later)
          end
        end
        if redis.call('hlen', lock) == known and latest < exact_most then
          redis.call('pexpire', lock, latest - now)
          redis.call('pexpire', nest, latest - now + nest_outlives)
          --! include read_back track=ARGV[1] lock=lock
        end
      elseif not ends and lease > 0 and left > lease then
        held[i] = left
      end
    end
  end
end
return held
