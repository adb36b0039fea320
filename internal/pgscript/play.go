package pgscript

import (
	"io"

	"github.com/jackc/pgx/v5/pgproto3"
)

// play sends an answer, without what makes the client ready for the next
// statement. An error ends the session.
func (c *conn) play(a *Answer, formats []int16, describe bool) (failed bool, err error) {
	if a.after != nil {
		select {
		case <-a.after:
		case <-c.server.closing:
			return false, errEnded
		}
	}
	if err := c.preface(a); err != nil {
		return false, err
	}
	c.session.follow(a)
	switch {
	case a.failure != nil:
		failed = true
		c.backend.Send(&pgproto3.ErrorResponse{
			Severity: a.failure.severity, SeverityUnlocalized: a.failure.severity,
			Code: a.failure.code, Message: a.failure.message,
		})
	case a.end != endNot:
	case a.tag == "":
		c.backend.Send(&pgproto3.EmptyQueryResponse{})
	default:
		if err := c.result(a, formats, describe); err != nil {
			return false, err
		}
	}
	switch a.end {
	case endHang:
		_ = c.backend.Flush() // what came before in the script
		_, err := io.Copy(io.Discard, c.socket)
		if err == nil {
			err = errEnded
		}
		return failed, err
	case endClose:
		if a.failure != nil {
			_ = c.backend.Flush()
		}
		return failed, errEnded
	default:
		return failed, nil
	}
}

// preface sends what comes before an answer proper.
func (c *conn) preface(a *Answer) error {
	for _, p := range a.parameters {
		c.backend.Send(&pgproto3.ParameterStatus{Name: p[0], Value: p[1]})
	}
	for i := 0; i != a.notices; i++ {
		c.backend.Send(&pgproto3.NoticeResponse{
			Severity: "NOTICE", SeverityUnlocalized: "NOTICE", Code: "00000", Message: "pgscript",
		})
		if i%100 == 99 {
			if err := c.backend.Flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// result sends a row, if there is one, and the command's tag.
func (c *conn) result(a *Answer, formats []int16, describe bool) error {
	if len(a.row) > 0 {
		if describe {
			c.backend.Send(description(a.row, formats))
		}
		values := make([][]byte, len(a.row))
		for i, v := range a.row {
			var err error
			if values[i], err = v.encode(c.types, formatOf(formats, i)); err != nil {
				c.server.t.Errorf("pgscript: a value can't be sent: %v", err)
				return err
			}
		}
		c.backend.Send(&pgproto3.DataRow{Values: values})
	}
	c.backend.Send(&pgproto3.CommandComplete{CommandTag: []byte(a.tag)})
	return nil
}
