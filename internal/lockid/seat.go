package lockid

// SeatClass and PlaceClass are the classes of the pairs that are seats, and places. Nobody
// else is to lock them.
const (
	SeatClass  int32 = -1746239858
	PlaceClass int32 = SeatClass + 1
)

// Seats is how many sessions wait for one lock on the server at a time.
const Seats = 4

// Places is how many more sessions look often whether a seat has become free.
const Places = 32

// Seat is the object of the first seat, and of the first place, at a lock. Those of the
// others follow. Locks whose seats fall together share them, which does no harm but to
// make them wait longer.
func (id ID) Seat() int32 {
	mixed := uint64(id.Number) * 0x9e3779b97f4a7c15
	return int32(uint32(mixed>>32)^uint32(id.Space)<<5) &^ (Places - 1)
}
