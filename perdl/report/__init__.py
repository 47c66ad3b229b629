"""The report of a run or a model: figures, their captions, one page of HTML."""
