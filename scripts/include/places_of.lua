--! fragment places_of most places whole
--
-- Sets places to the first places in the queue of a fair lock, most at most, and no more than places_bytes: more
-- is damaged data. whole reports whether places are all that there are.
places, whole = {}, false
local bytes = 0
for first = 0, most - 1, places_page do
  local page = redis.call('lrange', KEYS[2], first, first + places_page - 1)
  for i, place in ipairs(page) do
    places[first + i], bytes = place, bytes + #place
  end
  whole = #page < places_page
  if whole or bytes > places_bytes then
    break
  end
end
