--! fragment tell_first first message asker nth dropped
--
-- Sends a message to the client of first, the first entry that waits, or without a message looks whether it listens.
-- If it does not, the client of the next entry gets it, and so on, up to the entry of the asker, 64 at most; first is
-- then the entry that was told. An entry without a subscriber is removed if it is older than 100 ms (a client that
-- yields may not have subscribed yet), unless its client polls, or its subscribers cannot be counted; dropped becomes
-- true. first is an entry and its score. nth reads the entry behind so many waiting ones, with its score.
local behind = 0
for _ = 1, entries_passed do
  local entry = first[1]
  local ours = not entry or entry == asker
  if ours or not message and (string.sub(entry, 1, 1) == 'n' or not aged(first[2])) then
    break
  end
  local heard = message and tell(entry, message, true) or not message and listens(entry)
  if heard ~= 0 or string.sub(entry, 1, 1) == 'n' then
    break
  elseif aged(first[2]) and redis.pcall('hget', queue .. ':round', 'polls:' .. entry) == false then
    drop(entry)
    dropped = true
  else
    behind = behind + 1
  end
  first = nth
end
