B = 'before'
