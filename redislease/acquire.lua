-- Grants the lock to an owner with the next token, or says for how many milliseconds
-- another holds it. To an owner that has it, as when a client repeats a command whose
-- answer was lost, it draws no other token: nobody else can have drawn one meanwhile,
-- unless resources share the counter, where a higher one does as well.
--
-- KEYS: the lock, the counter of its tokens. ARGV: the owner, the TTL in ms.
-- Returns the token, or the time in a table.

if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return redis.call('INCR', KEYS[2])
end
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return tonumber(redis.call('GET', KEYS[2])) or redis.call('INCR', KEYS[2])
end
return {redis.call('PTTL', KEYS[1])}
