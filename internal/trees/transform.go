package trees

import "math"

// A transformation makes predictions of a row's raw scores, in place.
type transformation = func(out []float64)

func identity([]float64) {}

func each(f func(float64) float64) transformation {
	return func(out []float64) {
		for i, x := range out {
			out[i] = f(x)
		}
	}
}

// LightGBM works in float64.

func sigmoid(slope float64) transformation {
	return each(func(x float64) float64 { return 1 / (1 + math.Exp(-slope*x)) })
}

func softmax(out []float64) {
	most := math.Inf(-1)
	for _, x := range out {
		most = max(most, x)
	}
	sum := 0.0
	for i, x := range out {
		out[i] = math.Exp(x - most)
		sum += out[i]
	}
	for i := range out {
		out[i] /= sum
	}
}

func signedSquare(x float64) float64 { return math.Copysign(x*x, x) }

func log1pExp(x float64) float64 { return math.Log1p(math.Exp(x)) }

// XGBoost works in float32, and so do these.

func exp32(x float64) float64 { return float64(float32(math.Exp(x))) }

func sigmoid32(x float64) float64 {
	// Beyond 88.7 a float32's exponential overflows.
	e := float32(math.Exp(min(-x, float64(float32(88.7)))))
	return float64(1 / (e + 1))
}

func softmax32(out []float64) {
	most := math.Inf(-1)
	for _, x := range out {
		most = max(most, x)
	}
	sum := 0.0
	for i, x := range out {
		out[i] = exp32(float64(float32(x - most)))
		sum += out[i]
	}
	for i := range out {
		out[i] = float64(float32(out[i]) / float32(sum))
	}
}

func hinge(x float64) float64 {
	if x > 0 {
		return 1
	}
	return 0
}
