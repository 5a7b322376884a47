//go:build linux

package bench

import (
	"fmt"
	"image/color"
	"math"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// waiterSteps are the goroutines in each of 8 processes of the workloads that are plotted.
var waiterSteps = []int{1, 4, 16, 32}

func waitersWorkload(goroutines int) string { return fmt.Sprintf("contended 8x%d", goroutines) }

// plots are written to docs, and shown by the page.
var plots = []struct {
	file, title, axis string
	figure            func(outcome) float64
	log               bool
}{
	{"bench-throughput.svg", "Handoffs per second, 8 processes, one name, held 1 ms", "handoffs per second", rate, false},
	{"bench-commands.svg", "Commands for each handoff, 8 processes, one name, held 1 ms", "commands per handoff", commands, true},
}

// draw writes the plots into dir. They have what was measured with all numbers of waiters.
func (r *results) draw(dir string) error {
	for _, d := range plots {
		plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
		p := plot.New()
		p.Title.Text = d.title
		p.X.Label.Text, p.Y.Label.Text = "waiters", d.axis
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, ticksAt(8*waiterSteps[0], 8*waiterSteps[1], 8*waiterSteps[2], 8*waiterSteps[3])
		if d.log {
			p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, ticksAt(1, 2, 5, 10, 20, 50, 100, 200)
			p.Y.Min, p.Y.Max = 1, 1
		} else {
			p.Y.Min = 0
		}
		p.Add(plotter.NewGrid())
		p.X.Max = 4 * float64(8*waiterSteps[len(waiterSteps)-1]) // room for the legend
		p.Legend.Top, p.Legend.Left, p.Legend.XOffs = true, true, vg.Points(430)
		p.Legend.Padding = vg.Points(2)
		drawn := 0
		for _, c := range contenders() {
			var line plotter.XYs
			for _, n := range waiterSteps {
				if v := r.figure(waitersWorkload(n), c.name, d.figure); !math.IsNaN(v) && v > 0 {
					line = append(line, plotter.XY{X: float64(8 * n), Y: v})
				}
			}
			if len(line) != len(waiterSteps) {
				continue
			}
			l, points, err := plotter.NewLinePoints(line)
			if err != nil {
				return err
			}
			l.Color, points.Color = colors[drawn%len(colors)], colors[drawn%len(colors)]
			points.Shape = plotutil.Shape(drawn)
			l.Width = vg.Points(1)
			if c.role == mine {
				l.Width = vg.Points(2.5)
			}
			p.Add(l, points)
			p.Legend.Add(c.name, l, points)
			drawn++
		}
		if drawn == 0 {
			continue
		}
		if d.log {
			p.Y.Max *= 1.5
		}
		if err := p.Save(9*vg.Inch, 4.5*vg.Inch, filepath.Join(dir, d.file)); err != nil {
			return err
		}
	}
	return nil
}

// colors are Tableau's ten.
var colors = []color.Color{
	rgb(0x1f77b4), rgb(0xff7f0e), rgb(0x2ca02c), rgb(0xd62728), rgb(0x9467bd),
	rgb(0x8c564b), rgb(0xe377c2), rgb(0x7f7f7f), rgb(0xbcbd22), rgb(0x17becf),
}

func rgb(v uint32) color.Color {
	return color.RGBA{uint8(v >> 16), uint8(v >> 8), uint8(v), 0xff}
}

func ticksAt(values ...int) plot.ConstantTicks {
	ticks := make(plot.ConstantTicks, len(values))
	for i, v := range values {
		ticks[i] = plot.Tick{Value: float64(v), Label: fmt.Sprint(v)}
	}
	return ticks
}
