// about
/* $estimator of dtrees $version as C: $n_trees tree(s).

   void ${name}_$method(const double *x$margin, double *out)
       Writes what $method returns for a row: $n_out number(s).
$of_further
   x holds the $n_columns number(s) of a row; NAN is a missing value. Of a column of categories it has the place of the category, counted
   from 0, in the list given here; any other number is a category that was not there at fit, and as good as missing.
$columns$of_margin
   Example:
       double x[$n_columns] = {0}, ${margin_of_row}out[$n_out];
       ${name}_$method(x$margin_given, out);

   Nothing is allocated, and nothing is shared but constants, so that threads may call this side by side.
   cc -std=c99 -O2 -ffp-contract=off -c $name.c
       Results are those of dtrees, bit for bit, where every operation on doubles is rounded to a double by itself: without fused
       multiplications (-ffp-contract=off), and FLT_EVAL_METHOD being 0 (on x86 of 32 bits: -msse2 -mfpmath=sse). */
#ifdef __FAST_MATH__
#error "NaN stands for missing values: wants a compilation without -ffast-math"
#endif
#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#endif

#include <math.h>
#include <stdint.h>
// of_label
   int ${name}_predict(const double *x$margin)
       Returns the place, counted from 0, of what predict returns among the classes: $classes.
// of_labels
   void ${name}_predict(const double *x$margin, int *places)
       Writes for each of the $n_targets targets the place, counted from 0, of what predict returns among its classes:
       $classes.
       Probabilities have this order, too.
// of_decision
   void ${name}_decision_function(const double *x$margin, double *raw)
       Writes the raw predictions: $n_raw number(s).
// of_outlier
   void ${name}_decision_function(const double *x, double *above)
       Writes the score minus the offset: below 0 for outliers.
   int ${name}_predict(const double *x)
       Returns -1 for outliers, 1 for other rows.
// of_margin
   base_margin holds the $n_raw raw score(s) of the row that the sums of the trees are added to.
// trees

/* Nodes of all trees, in preorder: a left child is the next node, and a right child is "right" nodes further; 0 marks a leaf.
   Of a node, "slot" is 4 times its column, plus 2 where it has a set of categories, plus 1 where missing values go left, and "number" its
   threshold (values up to it go left), or where its set begins. Of a leaf, "number" is what it adds or, where that is several numbers,
   "slot" the row that has them. */
static const struct ${name}_node { double number; uint32_t slot, right; } ${name}_nodes[] = {
$nodes};
$tables
/* Where trees begin, and the first tree of each sum. */
static const uint32_t ${name}_roots[] = {
$roots};
static const uint32_t ${name}_first[] = {
$first};
/* What sums start from. */
static const double ${name}_initial[] = {
$initial};

static const struct ${name}_node *${name}_leaf(const struct ${name}_node *node, const double *x)
{
    while (node->right) {
        const double v = x[node->slot / 4];
        int missing = v != v, left = v <= node->number;
$test        if (missing)
            left = node->slot & 1;
        node += left ? 1 : node->right;
    }
    return node;
}

static void ${name}_raw(const double *x$margin, int first_sum, double *raw)
{
    for (int sum = first_sum; sum < first_sum + $n_groups; sum++, raw += $n_values) {
        for (int k = 0; k < $n_values; k++)
            raw[k] = 0.0;
        for (uint32_t tree = ${name}_first[sum]; tree < ${name}_first[sum + 1]; tree++) {
            const struct ${name}_node *leaf = ${name}_leaf(${name}_nodes + ${name}_roots[tree], x);
            for (int k = 0; k < $n_values; k++)
                raw[k] += $value;
        }
        for (int k = 0; k < $n_values; k++)
            raw[k] = (raw[k] + ${name}_initial[$n_values * sum + k]) / $divisor$margin_added;
    }
}
// values
/* What leaves add. */
static const double ${name}_values[][$n_values] = {
$values};
// sets
/* Numbers of categories, 0 of columns of numbers; and the sets: how many words, and these, with a bit for each category that goes left. */
static const double ${name}_categories[] = {
$n_categories};
static const uint32_t ${name}_sets[] = {
$sets};
// test
        const double n = ${name}_categories[node->slot / 4];
        if (n > 0.0)
            missing = !(v >= 0.0 && v < n && v == (double)(uint32_t)v);
        if (!missing && (node->slot & 2)) {
            const uint32_t *set = ${name}_sets + (uint32_t)node->number, number = (uint32_t)v;
            left = number / 32 < set[0] && ((set[1 + number / 32] >> (number % 32)) & 1);
        }
// exponential_function

static double ${name}_power_of_2(int64_t k)
{
    union { uint64_t bits; double number; } power;
    power.bits = (uint64_t)(k + 1023) << 52;
    return power.number;
}

/* exp(x) for x of at most 0, as dtrees computes it on every machine; C libraries differ in the last bit. */
static double ${name}_exp(double x)
{
    static const double terms[] = {
$terms};
    const double rounder = $rounder;
    union { double number; int64_t bits; } a, b;
    if (x < $lowest)
        x = $lowest;
    a.number = x * $per_ln_2 + rounder;
    b.number = rounder;
    const int64_t k = a.bits - b.bits, half = k / 2;
    const double multiple = a.number - rounder;
    const double r = (x - multiple * $ln_2) - multiple * $rest;
    double series = 0.0;
    for (int i = 0; i < $n_terms; i++)
        series = series * r + terms[i];
    return (1.0 + (r + r * r * series)) * ${name}_power_of_2(half) * ${name}_power_of_2(k - half);
}
// identity
    for (int k = 0; k < $n_raw; k++)
        out[k] = raw[k];
// exponential
    for (int k = 0; k < $n_raw; k++)
        out[k] = raw[k] > 0.0 ? 1.0 / ${name}_exp(-raw[k]) : ${name}_exp(raw[k]);
// logistic
    const double odds = $slope * raw[0], e = ${name}_exp(odds > 0.0 ? -odds : odds);
    out[odds > 0.0] = 1.0 / (1.0 + e);
    out[!(odds > 0.0)] = e / (1.0 + e);
// softmax
    double highest = raw[0], total = 0.0;
    for (int k = 1; k < $n_raw; k++)
        highest = raw[k] > highest ? raw[k] : highest;
    for (int k = 0; k < $n_raw; k++)
        total += out[k] = ${name}_exp(raw[k] - highest);
    for (int k = 0; k < $n_raw; k++)
        out[k] /= total;
// ascending
    for (int k = 0; k < $n_raw; k++) {
        int place = k;
        for (; place > 0 && out[place - 1] > raw[k]; place--)
            out[place] = out[place - 1];
        out[place] = raw[k];
    }
// score
    out[0] = -${name}_exp(-raw[0] * $ln_2);
// target
    {
$link    }
    raw += $n_raw;
    out += $n_predicted;
// predict

static void ${name}_link(const double *raw, double *out)
{
$link}

void ${name}_$method(const double *x$margin, double *out)
{
    double raw[$n_raw], one[$n_out];
    for (int k = 0; k < $n_out; k++)
        out[k] = 0.0;
    for (int member = 0; member < $n_members; member++) {
        ${name}_raw(x$margin_given, member * $n_groups, raw);
        ${name}_link(raw, one);
        for (int k = 0; k < $n_out; k++)
            out[k] += one[k];
    }
    for (int k = 0; k < $n_out; k++)
        out[k] /= $n_members.0;
}
// label

int ${name}_predict(const double *x$margin)
{
    double shares[$n_out];
    ${name}_predict_proba(x$margin_given, shares);
    return ${name}_largest(shares, $n_out);
}
// labels

void ${name}_predict(const double *x$margin, int *places)
{
    double shares[$n_out];
    ${name}_predict_proba(x$margin_given, shares);
$places}
// largest

static int ${name}_largest(const double *shares, int n)
{
    int best = 0;
    for (int k = 1; k < n; k++)
        best = shares[k] > shares[best] ? k : best;
    return best;
}
// decision

void ${name}_decision_function(const double *x$margin, double *raw)
{
    ${name}_raw(x$margin_given, 0, raw);
}
// outlier

void ${name}_decision_function(const double *x, double *above)
{
    ${name}_score_samples(x, above);
    *above -= $offset;
}

int ${name}_predict(const double *x)
{
    double above;
    ${name}_decision_function(x, &above);
    return above < 0.0 ? -1 : 1;
}
