--! fragment longest_reader lock prefix size enough longest
--
-- Raises longest to the longest lease of a reader of a lock, whose hash has this size. longest becomes nil if that is not
-- known, a reader's lease has no end (its next renewal puts it right), or a lease lasts for at least enough: the search
-- ends there. budget bounds the holds whose leases a script reads, whatever the hold counts say: more would block the
-- server. A record with more holds, or with a holder's name of more bytes than owner_longest, counts as damaged.
local fields
--! include fields_of key=lock size=size most=budget+1 fields=fields
longest = fields and longest
for i = 1, longest and #fields or 0, 2 do
  local field, holds = fields[i], tonumber(fields[i + 1]) or 0
  holds = string.sub(field, -#':write') == ':write' and 0 or holds
  budget = budget - math.max(0, holds) -- in this order: 0 for a NaN
  if budget < 0 or holds > 0 and #field > owner_longest then
    longest = nil
  end
  for k = 1, longest and holds or 0 do
    local lasts = redis.call('pttl', prefix .. ':' .. field .. ':rwlock_timeout:' .. k)
    longest = lasts ~= -1 and lasts < enough and math.max(longest, lasts) or nil
    if not longest then
      break
    end
  end
  if not longest then
    break
  end
end
