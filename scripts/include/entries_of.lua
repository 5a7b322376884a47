--! fragment entries_of letters entry all
--
-- Sets all to what the entry of an owner may be in its queue: with each of these letters, and with each mark for what
-- the owner asks for (see grant_entry). An entry with a number is itself only.
local from, to, tag = string.find(entry, '^%l([^:]*):[-f+]:')
all = from and {} or {entry} -- from is nil for a number
for letter in string.gmatch(from and letters or '', '.') do
  for mark in string.gmatch('-f+', '.') do
    all[#all + 1] = letter .. tag .. ':' .. mark .. string.sub(entry, to)
  end
end
