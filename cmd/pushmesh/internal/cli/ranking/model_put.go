package ranking

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

const (
	// modelPart is how many bytes of a file go in one message.
	modelPart = 1 << 20
	// MaxModel is the most bytes of a file: what a router takes.
	MaxModel = 64 << 20
)

type modelPut struct {
	Name       string        `arg:"" help:"Name of the model: a-z, 0-9, - and _."`
	File       string        `arg:"" type:"existingfile" help:"The model, as LightGBM or XGBoost saved it."`
	FileFormat string        `enum:"any,lightgbm,xgboost-binary,xgboost-json" default:"any" help:"Format that the file must have: lightgbm, xgboost-binary or xgboost-json; any by default."`
	Columns    []string      `placeholder:"NAMES" help:"Names of the columns in order, separated by commas, for a file that has none."`
	Comment    string        `placeholder:"TEXT" help:"A comment, stored with the version."`
	Timeout    time.Duration `default:"2m" placeholder:"D" help:"How long sending, checking and storing the file may take (${default})."`
	cmdline.RouterFlag
	cmdline.FormatFlag
}

func (modelPut) Help() string {
	return `The file is checked before it is stored: one that can't be read is refused. A file that equals the newest version makes no new one, so
that trying again does no harm.

  pushmesh model put clicks model.txt
  pushmesh model put clicks model.json --file-format xgboost-json --columns price,age,clicks --comment 'October' --format json`
}

var fileFormats = map[string]pushmeshv1.ModelFormat{
	"any":            pushmeshv1.ModelFormat_MODEL_FORMAT_UNSPECIFIED,
	"lightgbm":       pushmeshv1.ModelFormat_MODEL_FORMAT_LIGHTGBM_TEXT,
	"xgboost-binary": pushmeshv1.ModelFormat_MODEL_FORMAT_XGBOOST_BINARY,
	"xgboost-json":   pushmeshv1.ModelFormat_MODEL_FORMAT_XGBOOST_JSON,
}

// Run sends the file and prints the version that it is.
func (c *modelPut) Run(ctx context.Context, stdio cmdline.IO) error {
	if c.Timeout <= 0 {
		return cmdline.Usage("--timeout is %v, it must be above 0", c.Timeout)
	}
	file, err := os.Open(c.File)
	if err != nil {
		return err
	}
	answer, err := c.put(ctx, file)
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	return printModels(stdio.Out, c.FormatFlag, answer.GetModel())
}

func (c *modelPut) put(ctx context.Context, file *os.File) (*pushmeshv1.PutModelResponse, error) {
	about, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if about.Size() > MaxModel {
		return nil, fmt.Errorf("%s has %d bytes, a model at most %d", c.File, about.Size(), MaxModel)
	}
	var answer *pushmeshv1.PutModelResponse
	err = cmdline.Call(ctx, c.RouterFlag, c.Timeout, pushmeshv1.NewRankServiceClient, func(ctx context.Context, api pushmeshv1.RankServiceClient) error {
		first := &pushmeshv1.PutModelRequest{Name: c.Name, Format: fileFormats[c.FileFormat], Columns: c.Columns, Comment: c.Comment}
		answer, err = Send(ctx, api, first, file)
		return err
	})
	return answer, err
}

// Send streams a file after what first says of it. What the router refuses ends it early, and
// CloseAndRecv says why.
func Send(ctx context.Context, api pushmeshv1.RankServiceClient, first *pushmeshv1.PutModelRequest, file io.Reader) (*pushmeshv1.PutModelResponse, error) {
	stream, err := api.PutModel(ctx)
	if err != nil {
		return nil, err
	}
	next := first
	part := make([]byte, modelPart)
	for stream.Send(next) == nil {
		n, err := io.ReadFull(file, part)
		if n == 0 && errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, err
		}
		next = &pushmeshv1.PutModelRequest{Data: part[:n]}
	}
	return stream.CloseAndRecv()
}
