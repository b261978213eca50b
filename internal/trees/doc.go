// Package trees scores with gradient-boosted trees that LightGBM and XGBoost have trained, read
// from their model files.
//
// # Formats
//
//   - LightGBM's text model, versions v2 to v4: numerical splits with missing values of all three
//     kinds (none, zero, NaN), categorical splits, several classes, DART, random forests
//     (average_output).
//   - XGBoost's binary model, from 0.9 to 1.7, with or without the header "binf": boosters gbtree
//     and dart.
//   - XGBoost's JSON model, since 1.0: gbtree and dart, categorical splits, several classes and
//     targets, one or many base scores.
//
// Refused with UNSUPPORTED: linear trees and linear boosters, trees whose leaves are vectors,
// UBJSON, models in base64, LightGBM before v2, and objectives whose transformation is not known
// (custom ones have none). Everything else that can't be read, is beyond Limits or is not a forest
// (a node with two parents, a cycle, a child out of range, a threshold that is NaN, a leaf that is
// not finite) is INVALID_ARGUMENT.
//
// # What is the same as in the libraries
//
// Leaves are those that the libraries choose: LightGBM compares float64 (x <= threshold), XGBoost
// float32 (x < threshold). Raw scores are summed in the libraries' order and width (float64 for
// LightGBM, float32 for XGBoost), so that they are equal and not merely close. (XGBoost before 1.3
// adds the base score last, unless it scored while training: there a score may differ in the last
// place of a float32.) As in the library, the raw score of a random forest of LightGBM is the sum,
// and the prediction the average. Contributions are exact TreeSHAP (Lundberg et al.,
// arXiv:1802.03888) with the covers in the file as the background, which is what pred_contrib
// gives. Predictions of multi:softmax are the classes' probabilities, not the likeliest class.
//
// # How it walks
//
// A tree is a run of 16-byte nodes whose children stand side by side. A row is first turned into
// slots: for each pair of a column and a way of treating missing values that some node uses, an
// integer that orders like the value, where "missing" is the smallest or the largest one. So a step
// is one comparison of integers, without a branch, and eight rows walk a tree together.
//
// A Model does no I/O, starts no goroutine, and is safe for concurrent use.
package trees
