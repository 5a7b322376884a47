--! fragment owner_entries letters entry all
--
-- Sets all to what the entry of an owner may be in the queue of a semaphore or a read-write lock: with each of these
-- letters, for either side, and with a shorter lease or without one (see owner_entry). An entry with a number is itself
-- only.
local from, to, tag, wants = string.find(entry, '^%l([^:]*):(%w+)%+?:')
all = from and {} or {entry}
for letter in string.gmatch(from and letters or '', '.') do
  for _, mark in ipairs((wants == 'r' or wants == 'w') and {'r', 'w'} or {wants}) do
    all[#all + 1] = letter .. tag .. ':' .. mark .. ':' .. string.sub(entry, to + 1)
    all[#all + 1] = letter .. tag .. ':' .. mark .. '+:' .. string.sub(entry, to + 1)
  end
end
