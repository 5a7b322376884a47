--! fragment entries_of letters entry all
--
-- Sets all to what the entry of an owner may be in its queue: with each of these letters, and with each mark for what
-- the owner asks for (see grant_entry and owner_entry): a lock with or without a token, either side, or so many permits,
-- with a shorter lease or without one. An entry with a number is itself only.
local from, to, tag, wants = string.find(entry, '^%l([^:]*):([-+%w]+):')
wants = string.match(wants or '', '^(%w*)%+?$') or ''
local marks = (wants == '' or wants == 'f') and {'-', 'f', '+'} or {wants, wants .. '+'}
if wants == 'r' or wants == 'w' then
  marks = {'r', 'r+', 'w', 'w+'}
end
all = from and {} or {entry}
for letter in string.gmatch(from and letters or '', '.') do
  for _, mark in ipairs(marks) do
    all[#all + 1] = letter .. tag .. ':' .. mark .. string.sub(entry, to)
  end
end
