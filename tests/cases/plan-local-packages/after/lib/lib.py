B = 'after'
