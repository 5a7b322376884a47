--! fragment missed_window missed length misses pause seen now
--
-- Bounds length and pause of foreign clients' windows, in ms: another program may have written them. missed: no
-- foreign client used the last window, so the next one is twice as long. After three missed windows in a row there is
-- a pause: a second if a foreign client was seen in the last 10 s, otherwise 16 windows.
length = math.floor(math.min(math.max(length, window_shortest), window_longest))
if missed then
  length, misses = math.min(2 * length, window_longest), misses + 1
end
if pause > now + pause_longest then
  pause = 0
end
if misses >= misses_most then
  misses, pause = 0, now + (seen > now and pause_short or pause_windows * length)
end
