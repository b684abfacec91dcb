"""What users pass: tables, targets, weights and parameters, checked and encoded."""
