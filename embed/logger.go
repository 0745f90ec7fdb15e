package embed

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"gopkg.in/natefinch/lumberjack.v2"
)

// check reports what NewLogger cannot do. It opens nothing.
func (o LogOptions) check() error {
	if o.Logger != "zap" {
		return fmt.Errorf("unknown logger option %q: only zap is known", o.Logger)
	}
	if o.Format != "json" && o.Format != "console" {
		return fmt.Errorf("unknown log format: %s, expected json or console", o.Format)
	}
	if _, err := zapcore.ParseLevel(o.Level); err != nil {
		return fmt.Errorf("--log-level %q: %w", o.Level, err)
	}
	if len(o.Outputs) == 0 {
		return errors.New("--log-outputs is empty: name stderr, stdout or a file")
	}
	if !o.Rotation {
		return nil
	}
	if len(o.Outputs) != 1 || o.file() == "" {
		return errors.New("--enable-log-rotation needs exactly one file in --log-outputs")
	}
	var l lumberjack.Logger
	if err := json.Unmarshal([]byte(o.Rotate), &l); err != nil {
		return fmt.Errorf("--log-rotation-config-json: %w", err)
	}
	return nil
}

// file is the path of the only output, "" if it is none.
func (o LogOptions) file() string {
	switch o.Outputs[0] {
	case "default", "stderr", "stdout", "systemd/journal":
		return ""
	}
	return o.Outputs[0]
}

// NewLogger makes the logger that the options describe, in the form etcd's log has. stdout and stderr
// stand for those of the process. Call the returned function when nothing logs any more. With
// rotation one goroutine that compresses and removes old files stays behind: the logger is meant for
// a process, not for a test.
func NewLogger(o LogOptions, stdout, stderr io.Writer) (*zap.Logger, func() error, error) {
	if err := o.check(); err != nil {
		return nil, nil, err
	}
	level, _ := zapcore.ParseLevel(o.Level) // checked
	out, closeOutputs, err := o.open(stdout, stderr)
	if err != nil {
		return nil, nil, err
	}
	core := zapcore.NewCore(o.encoder(), out, level)
	core = zapcore.NewSamplerWithOptions(core, time.Second, 100, 100)
	lg := zap.New(core, zap.AddCaller(), zap.AddStacktrace(zapcore.PanicLevel), zap.ErrorOutput(out))
	return lg, func() error {
		_ = lg.Sync() // fails on terminals, which need none
		return closeOutputs()
	}, nil
}

func (o LogOptions) encoder() zapcore.Encoder {
	e := zapcore.EncoderConfig{
		LevelKey: "level", TimeKey: "ts", NameKey: "logger", CallerKey: "caller", MessageKey: "msg", StacktraceKey: "stacktrace",
		LineEnding: zapcore.DefaultLineEnding, EncodeLevel: zapcore.LowercaseLevelEncoder,
		EncodeTime:     zapcore.TimeEncoderOfLayout("2006-01-02T15:04:05.000000Z0700"),
		EncodeDuration: zapcore.StringDurationEncoder, EncodeCaller: zapcore.ShortCallerEncoder,
	}
	if o.Format == "console" {
		return zapcore.NewConsoleEncoder(e)
	}
	return zapcore.NewJSONEncoder(e)
}

// open opens all outputs as one.
func (o LogOptions) open(stdout, stderr io.Writer) (zapcore.WriteSyncer, func() error, error) {
	var files []io.Closer
	closeAll := func() error {
		var errs []error
		for _, f := range files {
			errs = append(errs, f.Close())
		}
		return errors.Join(errs...)
	}
	var outs []zapcore.WriteSyncer
	for _, name := range o.Outputs {
		switch name {
		case "default", "stderr", "systemd/journal": // systemd takes standard error into its journal
			outs = append(outs, zapcore.AddSync(stderr))
		case "stdout":
			outs = append(outs, zapcore.AddSync(stdout))
		default:
			f, err := o.openFile(name)
			if err != nil {
				return nil, nil, errors.Join(err, closeAll())
			}
			files = append(files, f)
			outs = append(outs, zapcore.AddSync(f))
		}
	}
	return zapcore.Lock(zapcore.NewMultiWriteSyncer(outs...)), closeAll, nil
}

func (o LogOptions) openFile(name string) (io.WriteCloser, error) {
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("log file: %w: name another with --log-outputs", err)
	}
	if !o.Rotation {
		return f, nil
	}
	if err := f.Close(); err != nil {
		return nil, fmt.Errorf("log file %s: %w", name, err)
	}
	l := &lumberjack.Logger{Filename: name}
	if err := json.Unmarshal([]byte(o.Rotate), l); err != nil {
		return nil, fmt.Errorf("--log-rotation-config-json: %w", err)
	}
	l.Filename = strings.TrimPrefix(name, "file://")
	return l, nil
}
