--! fragment owner_entry entry wants owner lease
--
-- An entry with an owner, in the queue of a semaphore or a read-write lock, is a letter, the client's tag, a colon, what
-- the owner asks for, a colon, and the owner: r or w for a side, or the number of permits, and then the ids of the
-- permits, joined. A plus sign before the second colon says that the hash queue:wants has the lease in ms, which is
-- shorter than a first lease. wants and owner become what the entry says, or nil. lease becomes that of a grant to the
-- owner. It is nil if nothing can be granted: the client does not listen, or that is not known, for example.
local more, lasts
wants, more, owner = string.match(entry, '^%l[^:]*:(%w+)(%+?):(.+)$')
lease = nil
if owner and at then
  local count = listens(entry)
  lasts = more == '' and first_lease or tonumber(redis.pcall('hget', asks, 'lease:' .. entry) or nil)
  if count and count ~= 0 and lasts and lasts >= 1 then -- NaN is not
    lease = math.min(lasts, first_lease)
  end
end
